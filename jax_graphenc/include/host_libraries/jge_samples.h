// include/host_libraries/jge_samples.h: helper_cuda.h and its like of CUDA's samples, and OpenGL.
#pragma once
#include <jge_cuda_libraries.h>
#define checkCudaErrors(call) (call)
#define getLastCudaError(message)
#define printLastCudaError(message)
struct StopWatchInterface;
typedef unsigned int GLuint;
typedef int GLint;
typedef int GLsizei;
typedef unsigned int GLenum;
typedef float GLfloat;
struct GLFWwindow;
