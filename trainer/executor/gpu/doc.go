// Package gpu runs a compiled program on a GPU.
//
//	machine, err := gpu.New(program, fixed, gorgonia.WhichBLAS(), gpu.On(device))
//	copy(machine.Input(0), batch)
//	err = machine.Run(gradients, func(i int) { send(gradients[i]) })
//
// The program is the same as for package cpu: the same instructions in the
// same order, the same memory plan, and the same moments at which gradients
// are ready. All values lie in one block of GPU memory, which New allocates; a
// run allocates nothing.
//
// TODO: no real GPU has run this. The tests run the kernels on a CPU, behind a
// stand-in for NVIDIA's driver. Results, speed and the driver's behaviour on a
// GPU are unknown.
//
// # Streams
//
// A run uses three CUDA streams. The first copies inputs and fixed values
// (such as the model's variables) to the GPU, in the order in which
// instructions need them. The second runs kernels. The third copies each
// gradient to the host as soon as its kernel is done, while later kernels run.
// Run calls ready for a gradient after the copy, when the gradient is in the
// caller's memory. Events order the streams; no call waits for the whole
// device.
//
// After a run has reported a gradient as ready, Renew copies the variable's
// new value to the GPU, piece by piece, while the run continues. The next run
// waits for these copies before the first operation that reads the value.
//
// # Graphs
//
// The second run records consecutive kernels as one CUDA graph, if the driver
// supports graphs; later runs replay the graph. A graph ends where a kernel
// must wait for a copy or completes a gradient. A fixed value that has not
// changed is not copied again.
//
// # Matrix products
//
// Matrix products are kernels of plx. If Device.Products names cuBLAS, they
// are calls of cuBLAS instead. cuBLAS then uses the scratch memory of plx's
// kernels as its workspace.
//
// # Values that stay
//
// After Machine.Reside the fixed values and the optimiser's state stay on the
// GPU. Each run ends with the update of the values. The whole run is one
// graph, except if the CPU computes an operation. Numbers that change from
// step to step, such as the learning rate, are in GPU memory, and the run
// copies them there with the inputs. Only outputs and sums of squares are
// copied back to the host.
//
// # Operations without a kernel
//
// An operation without a GPU kernel runs on the CPU with package cpu's kernel.
// The run waits for the operation's inputs, copies them to the host, and
// copies the result back. Machine.OnCPU lists these operations.
//
// # Errors
//
// The first run waits after each operation, so that an error names the
// operation whose kernel failed. In later runs the error names the range of
// operations that contains the failed one. A run fails if the GPU does not
// complete a piece of work within Device.Patience.
package gpu
