// Package gpu runs a compiled program on a GPU.
//
//	machine, err := gpu.New(program, fixed, gorgonia.WhichBLAS(), gpu.On(device))
//	copy(machine.Input(0), batch)
//	err = machine.Run(gradients, func(i int) { send(gradients[i]) })
//
// The program is the one that package cpu runs: the same instructions in the same
// order, the same plan of memory, the same announcements. All values lie in one
// block of the GPU's memory, which New allocates; a run allocates nothing.
//
// # Streams
//
// A run uses three streams. Inputs and fixed values travel on the first, in the
// order in which instructions need them. Kernels run on the second. Gradients
// travel on the third, each as soon as its kernel is done, while later kernels
// run. Run announces a gradient after its event, in the caller's memory. Events
// order the streams; nothing waits for the whole device.
//
// After a gradient was announced, Renew copies the variable's new value to the GPU,
// piece by piece as it arrives, while the run goes on. The next run waits for these
// copies before the first operation that reads the value.
//
// # Graphs
//
// Kernels that follow each other without a wait or a completed gradient between
// them are recorded as one graph in the second run, if the driver can, and
// replayed in later ones. A fixed value that has not changed is not copied again.
//
// # Matrix products
//
// They are kernels like the others. With Device.Products they are calls of cuBLAS,
// which works in the memory that is scratch memory of the kernels otherwise.
//
// # Values that stay
//
// After Machine.Reside the fixed values stay on the GPU with what the optimiser keeps
// for them. Each run ends with the updates, and the whole run is one graph unless the
// CPU computes an operation. What changes from step to step, such as the rate, lies in
// memory of the GPU, which the run copies there with the inputs. Only outputs and
// sums of squares come back.
//
// # Operations without a kernel
//
// Such an operation runs on the CPU with package cpu's kernel. The run waits for
// its inputs, copies them to the host, and copies the result back. Machine.OnCPU
// names those operations.
//
// # Faults
//
// The first run waits after each operation, so that an error names the operation
// whose kernel failed. In later runs the error names the operations among which
// the failed one is. Every wait is bounded: a GPU that does not answer for
// Device.Patience fails the run.
package gpu
