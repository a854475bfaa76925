-- What a copy of the disk cannot know: a word in the lake, another one with every operation that changes it.

CREATE TABLE frostline.turns (
    number   bigint GENERATED ALWAYS AS IDENTITY,
    table_id int NOT NULL,  -- of a table that has left, too: its files may have stayed, where the next one's are to be
    word     uuid PRIMARY KEY
);
COMMENT ON TABLE frostline.turns IS 'words that this database has left beside the files of a table; one that is not here is of another database';
