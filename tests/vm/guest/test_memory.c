#include "guest.h"
const struct test_group group_memory = {NULL, 0};
