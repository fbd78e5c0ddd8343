"""A study: arms over seeds, from shared searches, to tables and pictures. Nothing here trains anything itself."""
