"use strict";
// The browser of samples. All texts are set as text, never as markup.
// A number that is tapped names its files; a mouse has the cell's title for that.
document.addEventListener("click", (event) => {
  const cell = event.target.closest("td[data-source]");
  if (cell) cell.closest(".wide").nextElementSibling.textContent = `${cell.firstChild.textContent}: ${cell.title}`;
});

(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const make = (tag, text, name) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (name) element.className = name;
    return element;
  };
  const times = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const conditions = {
    all: ["all problems", () => true],
    solved: ["solved by this arm", (found) => found && found.correct > 0],
    unsolved: ["not solved by this arm", (found) => found && found.correct === 0],
    fewer: ["fewer strategies than the first arm", (found, first) => found && first && found.strategies < first.strategies],
    more: ["more strategies than the first arm", (found, first) => found && first && found.strategies > first.strategies],
    archived: ["with elites in the archive", (found, first, problem) => problem.cells.length > 0],
  };
  for (const [number, arm] of data.arms.entries()) byId("arm").append(new Option(arm.label, number));
  for (const [key, [label]] of Object.entries(conditions)) byId("condition").append(new Option(label, key));
  byId("arm").value = String(data.arms.length - 1);

  let chosen = data.problems[0];
  const listed = () => {
    const query = byId("query").value.trim().toLowerCase();
    const arm = Number(byId("arm").value);
    const fits = conditions[byId("condition").value][1];
    return data.problems.filter((problem) =>
      `${problem.id} ${problem.question || ""}`.toLowerCase().includes(query) &&
      fits(problem.answers[arm], problem.answers[0], problem));
  };
  const showList = () => {
    const found = listed();
    byId("count").textContent = `${found.length} of ${times(data.problems.length, "problem")}`;
    byId("problems").replaceChildren(...found.map((problem) => {
      const button = make("button");
      button.type = "button";
      button.append(make("strong", problem.id), make("div", problem.question || ""));
      button.setAttribute("aria-current", problem === chosen);
      button.addEventListener("click", () => {
        chosen = problem;
        for (const other of byId("problems").querySelectorAll("button")) other.setAttribute("aria-current", other === button);
        showProblem();
        byId("problem").scrollIntoView({ block: "nearest" });
        byId("problem").focus({ preventScroll: true });
      });
      const item = make("li");
      item.append(button);
      return item;
    }));
  };
  const section = (head, ...parts) => [make("h4", head), ...parts];
  const asked = (problem) => {
    if (problem.question === undefined) return [make("p", "The data source does not have this problem.", "quiet")];
    const parts = [make("p", problem.question)];
    if (problem.prompt) {
      const prompt = make("details");
      prompt.open = problem.prompt.length <= 12;
      prompt.append(make("summary", "Schema and question, as the policy reads them"),
        make("pre", problem.prompt.map((line) => data.lines[line]).join("\n")));
      parts.push(prompt);
    }
    if (problem.golds.length) parts.push(...section("Gold", ...problem.golds.map((gold) => make("pre", gold))));
    const rest = Object.entries(problem.data).map(([name, value]) => `${name}: ${value}`);
    if (rest.length) parts.push(make("p", rest.join(" · "), "quiet"));
    return parts;
  };
  const elites = (problem) => {
    if (!problem.cells.length) return data.archives.length ? [make("p", "No elites: the archive holds training problems that the search has solved.", "quiet")] : [];
    return data.archives.flatMap((archive, number) => {
      const rows = problem.cells.filter((cell) => cell[0] === number);
      if (!rows.length) return [];
      return section(`Archive of ${archive}: ${times(new Set(rows.map((cell) => cell[1] + "\n" + cell[2])).size, "cell")}`,
        ...rows.map(([, approach, structure, solution, count]) => {
          const box = make("div", undefined, "answer right");
          box.append(make("p", `${approach} · ${structure}${count > 1 ? ` · kept ${count} times` : ""}`), make("pre", solution));
          return box;
        }));
    });
  };
  const answer = (problem, arm, [text, count, correct, reason, strategy, run, sample]) => {
    const box = make("div", undefined, `answer ${correct ? "right" : "wrong"}`);
    const line = make("p", `${count} × `);
    const verdict = make("strong", correct ? "correct" : (reason || "wrong").replaceAll("_", " "), "verdict");
    line.append(verdict);
    if (correct) {
      const named = make("span", ` · strategy ${strategy + 1}`);
      named.title = problem.strategies[strategy];
      line.append(named);
    }
    line.append(make("span", ` · ${arm.files[run]}, sample ${sample}`, "quiet"));
    box.append(line, make("pre", text));
    return box;
  };
  const answered = (problem) => problem.answers.flatMap((found, number) => {
    const arm = data.arms[number];
    if (!found) return [];
    const parts = found.rows.map((row) => answer(problem, arm, row));
    if (found.left_out) parts.push(make("p", `${times(found.left_out, "further answer")} (${times(found.left_out_samples, "sample")}) left out here; see the files.`, "quiet"));
    const box = make("details");
    box.open = data.arms.length <= 3 || number === 0 || number === Number(byId("arm").value);
    const head = make("summary");
    head.append(make("strong", arm.label), ` ${found.correct} of ${times(found.samples, "sample")} correct, ${found.strategies === 1 ? "1 strategy" : `${found.strategies} strategies`}`);
    box.append(head, ...parts);
    return [box];
  });
  const showProblem = () => {
    const article = byId("problem");
    article.replaceChildren();
    if (!chosen) return;
    const answers = answered(chosen);
    article.append(make("h3", chosen.id), ...asked(chosen), ...elites(chosen), ...(answers.length ? section("What each arm answered", ...answers) : []));
  };
  for (const id of ["query", "arm", "condition"]) byId(id).addEventListener("input", () => { showList(); if (id === "arm") showProblem(); });
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("browser").hidden = false;
  showList();
  showProblem();
})();
