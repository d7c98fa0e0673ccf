// Package trainer trains a Gorgonia model on every worker of a job as if it
// were one device.
//
// The single-device program and the distributed one are one file. Run by
// itself it trains in one process; under plx its role comes from the launcher:
//
//	func main() {
//		flag.Parse()
//		trainer.Main(train)
//	}
//
//	func train(ctx context.Context, job *trainer.Job) error {
//		replica, err := job.Parallelize(ctx, build, trainer.SGD(0.1), trainer.GlobalBatch(64))
//		if err != nil {
//			return err
//		}
//		for step := range 1000 {
//			x, y := rows(step, job.WorkerID(), job.NumWorkers()) // this worker's share of the batch
//			result, err := replica.Step(ctx, trainer.Feed{"x": x, "y": y})
//			if err != nil {
//				return err
//			}
//			if job.IsChief() && step%100 == 0 {
//				fmt.Println(step, result.Loss)
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
// Every worker computes the gradients of its rows; parameter servers (package
// trainer/ps) add them in a fixed order, apply the optimiser and answer with
// the new values. Training is synchronous: after the same step every worker
// has the same variables, up to rounding those of one process on the whole
// batch. A peer that dies or falls silent ends the step of all others with an
// error that names it.
//
// # What it refuses
//
// It knows nothing of SSH or resource files: any launcher that sets the
// contract of package trainer/cluster will do. It does not checkpoint,
// restart or train asynchronously. Gorgonia's dropout and its initialisers
// are seeded by the clock; use this package's initialisers for runs that can
// be repeated.
package trainer
