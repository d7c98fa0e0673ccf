// Package trainer trains a Gorgonia model on every worker of a job as if it
// were one device.
//
// The single-device program and the distributed one are one file. Run by
// itself it trains in one process; under plx its role comes from the launcher:
//
//	func main() { trainer.Main(train) }
//
//	func train(ctx context.Context, job *trainer.Job) error {
//		replica, err := job.Parallelize(ctx, build, trainer.SGD(0.1), trainer.GlobalBatch(64))
//		if err != nil {
//			return err
//		}
//		from, to := replica.Rows() // this worker's rows of every batch
//		for replica.Steps() < 1000 {
//			x, y := rows(replica.Steps(), from, to)
//			result, err := replica.Step(ctx, trainer.Feed{"x": x, "y": y})
//			if err != nil {
//				return err
//			}
//			if job.IsChief() {
//				fmt.Println(replica.Steps(), result.Loss)
//			}
//		}
//		return nil
//	}
//
//	// a complete single-device model of batch rows
//	func build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
//		x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(batch, 10))
//		...
//		return trainer.Model{Inputs: gorgonia.Nodes{x, y}, Variables: gorgonia.Nodes{w}, Loss: loss}, nil
//	}
//
// # How it trains
//
// A batch is cut into data shards, one per virtual worker; every worker
// computes the gradients of a contiguous range of them, in lanes side by side
// (package executor). The owner of a variable, a server or a worker as --arch
// has it, adds the gradients along a fixed tree, applies the optimiser and
// answers with the new values (package owner). So the weights are the same
// bits for any number of workers up to that of virtual workers. How far
// workers may drift apart is --sync's to say, docs/synchronisation.md tells
// what each mode promises.
//
// A peer that dies or falls silent ends the step of all others with an error
// that names it.
//
// # What it refuses
//
// It knows nothing of SSH or resource files: any launcher that sets the
// contract of package trainer/cluster will do. It does not checkpoint or
// restart. Operations with hidden state, Gorgonia's dropout and batch norm
// among them, are refused by name: package nn has their like. Gorgonia's
// initialisers are seeded by the clock; use this package's for runs that can
// be repeated.
package trainer
