#include "guest.h"
const struct test_group group_stress = {NULL, 0};
