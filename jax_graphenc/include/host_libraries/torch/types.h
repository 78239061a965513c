#include <jge_torch.h>
