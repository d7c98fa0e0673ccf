/* What plx asks of OpenBLAS, which here knows its processor only with KNOWS. With OLD it has
   no kernels SkylakeX, and with WRONG these compute wrongly at one alignment; BLIS and MKL are
   other libraries, which know no such kernels. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(KNOWS)
static const char *core = "Zen";
#else
static const char *core = "Prescott";
#endif

__attribute__((constructor)) static void choose(void)
{
	const char *wanted = getenv("OPENBLAS_CORETYPE");
	if (wanted && !strcmp(wanted, "Haswell"))
		core = "Haswell";
#if !defined(OLD)
	if (wanted && !strcmp(wanted, "SkylakeX"))
		core = "SkylakeX";
#endif
}

#if defined(BLIS)
const char *bli_info_get_version_str(void) { return "1.2"; }
#elif defined(MKL)
static int threads;
void MKL_Set_Num_Threads(int n) { threads = n; }
int MKL_Get_Max_Threads(void) { return threads; }
void MKL_Get_Version_String(char *text, int n) { strncpy(text, "MKL 1.2", n); }
#else
const char *openblas_get_config(void) { return "OpenBLAS 9.9 DYNAMIC_ARCH"; }
const char *openblas_get_corename(void) { return core; }
#endif

#define PRODUCTS(T, gemm, gemv)                                                                  \
	void gemm(int order, int ta, int tb, int m, int n, int k, T alpha, T *a, int lda, T *b,  \
		  int ldb, T beta, T *c, int ldc)                                                \
	{                                                                                        \
		int odd = core[0] == 'S' && (uintptr_t)a % 64 == 40;                             \
		for (int i = 0; i < m; i++)                                                      \
			for (int j = 0; j < n; j++) {                                            \
				T sum = 0;                                                       \
				for (int l = 0; l < k; l++)   {                                 \
					sum += (ta == 111 ? a[i * lda + l] : a[l * lda + i]) *   \
					       (tb == 111 ? b[l * ldb + j] : b[j * ldb + l]);    \
				}                                                                \
				sum += WRONG && odd && i == 1;                                   \
				c[i * ldc + j] = alpha * sum + (beta ? beta * c[i * ldc + j] : 0); \
			}                                                                        \
	}                                                                                        \
	void gemv(int order, int ta, int m, int n, T alpha, T *a, int lda, T *x, int incx,       \
		  T beta, T *y, int incy)                                                        \
	{                                                                                        \
		int all = ta == 111 ? m : n;                                                     \
		gemm(order, ta, 111, all, 1, m + n - all, alpha, a, lda, x, incx, beta, y, incy); \
	}

#ifndef WRONG
#define WRONG 0
#endif
PRODUCTS(float, cblas_sgemm, cblas_sgemv)
PRODUCTS(double, cblas_dgemm, cblas_dgemv)
