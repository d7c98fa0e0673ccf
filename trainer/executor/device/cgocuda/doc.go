// Package cgocuda opens NVIDIA's driver through gorgonia.org/cu. It is the second
// binding of the driver beside package cuda: both pass internal/test/devicetest, so a
// mistake in the layout of a call shows as a difference between them. A program that is
// built with cgo and the tag cu opens its GPU here, every other one by package cuda.
//
//	CGO_ENABLED=1 CGO_LDFLAGS=-Wl,-z,lazy go build -tags cu ./examples/mlp
//
// It needs the header cuda.h of CUDA 11.4 to 12. It has a tag of its own because
// Gorgonia has code behind the tag cuda, which needs cuDNN 8 and does not compile.
//
// A program starts on a host without the driver too: its linker finds the empty
// libcuda.a, and leaves the driver's functions open until their first call. Without
// -z lazy some linkers want them when the program starts. They do not report other
// functions of C that are missing either.
//
// Package cu does what it can. This package calls the driver itself, through cgo,
// for what cu lacks: pinned memory, graphs, names of errors, and launches with a
// block of parameters. cu's own launch wants a pointer per parameter, and allocates.
//
// The driver is bound once per process: PLX_CUDA of the first Open that succeeds
// holds for all later ones. No call waits for the GPU and none of a step allocates,
// except that asking an event that is not done allocates the 8 bytes of cu's error.
package cgocuda
