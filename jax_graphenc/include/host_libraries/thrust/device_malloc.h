#include <jge_thrust.h>
