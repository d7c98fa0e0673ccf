// Package cuda calls NVIDIA's driver, libcuda.so.1, which it loads at run
// time, without cgo and without the CUDA toolkit. It implements package device
// and adds nothing to the driver's calls.
//
//	gpu, err := cuda.Open(0)
//
// The constant functions lists every function of the driver that the package
// calls. Each name ends in the function's version. Drivers keep old versions
// of a function, so a program runs with every driver since CUDA 11.0. All
// users of a GPU in this process share the GPU's primary context. The driver
// keeps the current context per thread, and Go moves goroutines between
// threads. Every call therefore first sets the context, and stays on its
// thread until it returns.
//
// On platforms other than Linux, and in programs built with -tags nodlopen,
// Open returns an error.
//
// TODO: no real GPU has run this. All tests use internal/test/cudatest, a
// stand-in for the driver. Calling conventions, error codes and the claim
// about old drivers were never checked with NVIDIA's driver.
package cuda
