/* The types of numbers in the C files, each of which is compiled once for REAL_BITS = 32 and once for 64. */

#include <stdint.h>

typedef int64_t place; /* a size or an index */

#if REAL_BITS == 32
typedef float real;
typedef int32_t real_bits;
#else
typedef double real;
typedef int64_t real_bits;
#endif
