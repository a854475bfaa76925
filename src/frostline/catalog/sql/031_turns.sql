-- What a copy of the disk cannot know: a word in the lake, another one with every operation that changes it.

CREATE TABLE frostline.turns (
    table_id int NOT NULL REFERENCES frostline.tables (id) ON DELETE CASCADE,
    word     uuid NOT NULL,
    PRIMARY KEY (table_id, word)
);
COMMENT ON TABLE frostline.turns IS 'words that this database has left beside the files of a table; one that is not here is of another database';
