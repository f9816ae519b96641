-- Run once, by the owner of the database, when the volume is empty: semlex's role needs no right to create extensions.
CREATE EXTENSION IF NOT EXISTS vector;
