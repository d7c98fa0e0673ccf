// Package operation defines the interfaces between an operation of a Gorgonia
// graph and package executor, which runs the operation.
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
// Package nn has such operations. Run computes on values in host memory. An
// operation that GPUs can compute too implements OnGPU, which returns its GPU
// kernels.
package operation

import "gorgonia.org/gorgonia"

// Call describes one run of a graph, which computes one virtual worker's part
// of one step. A virtual worker is an equal part of each batch.
type Call struct {
	Step           uint64 // training step, counted from 0
	VirtualWorker  int    // the virtual worker (part of the batch) that the run computes, counted from 0
	VirtualWorkers int    // number of virtual workers of the whole job
	Seed           uint64 // seed of the job
	Train          bool   // true for a training step, false for an evaluation
}

// Contextual is implemented by operations whose result depends on the Call,
// such as dropout and batch normalisation. The executor calls Prepare before
// each run, on the goroutine that then runs the graph.
type Contextual interface {
	Prepare(Call)
}

// Kernel is implemented by operations that compute their result themselves,
// instead of through Gorgonia's Do.
//
// Run writes the result into out, which has the inferred shape and undefined
// contents. out shares no memory with the inputs. All tensors are row-major,
// and Run gets the same tensor objects at every run.
//
// Run must allocate nothing. So it must not call the method Data of a tensor,
// which allocates; Float32s and Float64s do not.
type Kernel interface {
	Run(out gorgonia.Value, inputs ...gorgonia.Value) error
}
