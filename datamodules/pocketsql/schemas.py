"""The twenty databases of PocketSQL: twelve for training, four for validation, four for the test.

The names of the held-out databases' tables occur in no training database and in no demonstration.
"""

from __future__ import annotations

from datamodules.pocketsql.schema_text import PocketSchema, parse_schema

TRAINING = {
    "campus": "students(id, name, major{art law math biology chemistry}, age#) "
    "courses(id, title, faculty{north south east west}, credits#) "
    "enrollments(student_id>students, course_id>courses, grade#)",
    "market": "customers(id, name, city{oslo rome lima cairo delhi}, income#) "
    "products(id, label, kind{toy food tool book game}, price#) "
    "orders(id, customer_id>customers, product_id>products, quantity#)",
    "press": "authors(id, name, country{france japan india brazil kenya}, fame#) "
    "journals(id, title, field{physics botany history optics logic}, impact#) "
    "papers(author_id>authors, journal_id>journals, cites#)",
    "airline": "pilots(id, name, rank{junior senior captain chief}, hours#) "
    "planes(id, model, maker{boeing airbus cessna fokker}, seats#) "
    "flights(pilot>pilots, plane>planes, miles#)",
    "clinic": "doctors(id, name, ward{heart eye skin bone brain}, salary#) "
    "patients(id, name, town{bergen lyon kyoto quito perth}, weight#) "
    "visits(doctor_id>doctors, patient_id>patients, fee#)",
    "league": "players(id, name, team{lions bears hawks wolves sharks}, height#) "
    "matches(id, venue, round{gold silver bronze iron}, crowd#) "
    "goals(player_id>players, match_id>matches, minute#)",
    "company": "departments(id, name, building{alpha beta gamma delta}, budget#) "
    "employees(id, name, job{clerk engineer cook driver}, wage#, department>departments)",
    "rally": "drivers(id, name, region{alps coast plain hills}, points#) "
    "cars(id, model, brand{audi fiat ford honda volvo}, power#) "
    "races(driver>drivers, car>cars, laps#)",
    "farm": "farmers(id, name, valley{upper lower middle outer}, acres#) "
    "crops(id, name, season{spring summer autumn winter}, yield_rate#) "
    "harvests(grown_by>farmers, crop_id>crops, tons#)",
    "museum": "curators(id, name, wing{egypt greece china peru}, years#) "
    "paintings(id, title, style{cubist baroque modern gothic}, value#, keeper>curators)",
    "kitchen": "chefs(id, name, cuisine{thai greek cuban polish}, stars#) "
    "dishes(id, title, course{starter main dessert drink}, calories#) "
    "menus(cooked_by>chefs, dish_id>dishes, cost#) "
    "suppliers(id, name, goods{fish meat fruit grain}, distance#)",
    "forum": "users(id, nickname, badge{bronze silver gold platinum}, karma#) "
    "topics(id, title, area{music sport travel science}, views#) "
    "replies(id, written_by>users, topic_id>topics, likes#)",
}

VALIDATION = {
    "harbour": "vessels(id, name, flag{malta panama norway greece}, length#) "
    "cargoes(id, label, hazard{none mild severe}, mass#) "
    "shipments(vessel_id>vessels, cargo_id>cargoes, duration#)",
    "theatre": "actors(id, name, union_branch{london paris berlin vienna}, roles_played#) "
    "plays(id, title, period{tudor modern classic}, acts#) "
    "castings(actor_id>actors, play_id>plays, lines#)",
    "observatory": "telescopes(id, name, hemisphere{northern southern equatorial}, aperture#) "
    "sightings(id, object, sky{dark bright hazy}, magnitude#, seen_with>telescopes)",
    "mining": "miners(id, name, shift{dawn noon dusk}, output#) "
    "shafts(id, label, ore{copper zinc nickel}, depth#) "
    "digs(dug_by>miners, shaft_id>shafts, meters#) "
    "carts(id, name, metal{steel iron tin}, load#)",
}

TEST = {
    "orchestra": "musicians(id, name, section{strings brass woodwind percussion}, tenure#) "
    "symphonies(id, title, composer{mahler bruckner dvorak elgar}, bars#) "
    "rehearsals(musician_id>musicians, symphony_id>symphonies, seconds#)",
    "brewery": "brewers(id, name, guild{amber copper stout pale}, barrels#) "
    "beers(id, label, hop{citra saaz fuggle}, bitterness#) "
    "tastings(brewer>brewers, beer>beers, score#)",
    "railway": "stations(id, name, district{harbor central airport}, platforms#) "
    "departures(id, destination, carriage{sleeper express local}, delay#, leaves_from>stations)",
    "beekeeping": "keepers(id, name, meadow{clover heather linden}, hives#) "
    "queens(id, title, breed{carniolan italian buckfast}, brood#) "
    "inspections(done_by>keepers, queen_id>queens, frames#) "
    "swarms(id, name, mood{calm angry}, bees#)",
}


def _parse(texts: dict[str, str]) -> dict[str, PocketSchema]:
    return {name: parse_schema(name, text) for name, text in texts.items()}


SPLITS: dict[str, dict[str, PocketSchema]] = {
    "train": _parse(TRAINING),
    "validation": _parse(VALIDATION),
    "test": _parse(TEST),
}
