int op_linear(void);
int tensor_rows(void);

int op_linear(void) { return 4; }
int tensor_rows(void) { return 5; }
