// Package operation is the contract between an operation of a Gorgonia graph
// and package executor, which runs it.
//
// An operation that computes from its inputs and settings alone implements
// Kernel. An operation that also depends on the step, the virtual worker or
// the seed implements Contextual as well:
//
//	func (d *dropout) Prepare(c operation.Call) { d.call = c }
//
//	func (d *dropout) Run(out gorgonia.Value, inputs ...gorgonia.Value) error {
//		if !d.call.Train {
//			...
//		}
//		...
//	}
//
// Package nn has such operations. Their values are in host memory. An operation that
// GPUs compute too implements OnGPU, and says with which kernels.
package operation

import "gorgonia.org/gorgonia"

// Call describes one run of a graph: one virtual worker's part of one step.
type Call struct {
	Step           uint64 // training step, counted from 0
	VirtualWorker  int    // the virtual worker whose rows the run computes, counted from 0
	VirtualWorkers int    // number of virtual workers of the job
	Seed           uint64 // seed of the job
	Train          bool   // false: the run is an evaluation
}

// Contextual is implemented by operations that depend on the call, such as
// dropout and batch normalisation. The executor calls Prepare before each run,
// on the goroutine of the run.
type Contextual interface {
	Prepare(Call)
}

// Kernel is implemented by operations that bring their own kernel.
//
// Run writes the result into out, which has the inferred shape and undefined
// contents. It allocates nothing. Out shares no memory with the inputs. All
// values are row-major, and stay the same objects from run to run. Data of a
// tensor allocates; Float32s and Float64s do not.
type Kernel interface {
	Run(out gorgonia.Value, inputs ...gorgonia.Value) error
}
