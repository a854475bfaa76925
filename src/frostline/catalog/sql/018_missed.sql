-- Changes of a leaf that its capture has let pass: a sequence, so that who passes it waits for nobody and takes nothing back.

CREATE SEQUENCE frostline.missed;
COMMENT ON SEQUENCE frostline.missed IS 'moves on with every change of a leaf that was not captured, for the table had another shape';
