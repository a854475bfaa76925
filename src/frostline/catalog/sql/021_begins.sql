-- Asked when a statement begins inside another one: the argument is the table and how deep the statement stands; the answer,
-- "held" where the outer one has changed cold rows that are not stored yet, else "nothing". Without a depth: is anything held?
CREATE FOREIGN TABLE frostline.call_begins (argument text, answer text)
    SERVER "frostline gateway (frostline up starts it)" OPTIONS (schema_name 'frostline call', table_name 'begins');
