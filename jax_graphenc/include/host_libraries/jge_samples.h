// include/host_libraries/jge_samples.h: helper_cuda.h and its like of CUDA's samples, and OpenGL.
#pragma once
#include <jge_cuda_libraries.h>
#define checkCudaErrors(call) (call)
#define getLastCudaError(message)
#define printLastCudaError(message)
struct StopWatchInterface;
typedef unsigned char GLboolean, GLubyte;
typedef signed char GLbyte;
typedef short GLshort;
typedef unsigned short GLushort;
typedef int GLint, GLsizei;
typedef unsigned int GLbitfield, GLenum, GLuint;
typedef float GLclampf, GLfloat;
typedef double GLclampd, GLdouble;
typedef void GLvoid;
struct GLFWwindow;
