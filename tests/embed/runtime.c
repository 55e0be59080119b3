// Functions that are called like inner ones of Deltaic; nothing may take one for the other.
int fail(void);
int pool_create(void);
int checkpoint_open(void);

int fail(void) { return 1; }
int pool_create(void) { return 2; }
int checkpoint_open(void) { return 3; }
