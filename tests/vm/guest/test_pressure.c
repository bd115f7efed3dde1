#include "guest.h"
const struct test_group group_pressure = {NULL, 0};
