// Package cgocuda calls NVIDIA's driver through cgo and gorgonia.org/cu. It
// implements package device a second time, beside package cuda. Both packages
// pass internal/test/devicetest, so a wrong argument in one of them shows as a
// difference. A program that is built with cgo and the tag cu opens its GPU
// with this package. Every other program opens it with package cuda.
//
//	CGO_ENABLED=1 CGO_LDFLAGS=-Wl,-z,lazy go build -tags cu ./examples/mlp
//
// The build needs the header cuda.h of CUDA 11.4 to 12. The tag is cu and not
// cuda, because the tag cuda selects code in Gorgonia that needs cuDNN 8 and
// does not compile.
//
// The program also starts on a host without the driver. The linker finds the
// empty libcuda.a in this directory, and the dynamic loader finds the driver's
// functions at their first call. Without -z lazy, some linkers make the loader
// look for these functions when the program starts. With -z lazy, a C function
// that is missing for another reason is not reported at the start either.
//
// This package uses gorgonia.org/cu for most calls. For calls that cu lacks,
// it calls the driver itself, through cgo: pinned memory, graphs, names of
// errors, and launches with a block of parameters. The launch of cu needs a
// pointer per parameter and allocates memory.
//
// The process loads the driver once. The file that PLX_CUDA names in the first
// successful Open is used by all later ones. No call waits for the GPU. No
// call of a training step allocates memory, with one exception: polling an
// event that is not done allocates the 8 bytes of cu's error.
//
// TODO: no real GPU has run this. The package was tested only with a stand-in
// for the driver, compiled against plx's own cuda.h.
package cgocuda
