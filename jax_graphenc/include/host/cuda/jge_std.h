// include/host/cuda/jge_std.h: libcu++'s part of the C++ library is the compiler's own here.
#pragma once
namespace std {}
namespace cuda {
namespace std = ::std;
}
