// Package trainer trains a Gorgonia model on every worker of a job as if all
// workers were one device.
//
// The same program file trains on one device and on many. If plx does not
// launch the program, it trains in one process. If plx launches it, the
// launcher assigns a role to each process:
//
//	func main() { trainer.Main(train) }
//
//	func train(ctx context.Context, job *trainer.Job) error {
//		session, err := job.Parallelize(ctx, build, trainer.SGD(0.1), trainer.Config{GlobalBatch: 64})
//		if err != nil {
//			return err
//		}
//		from, to := session.Rows() // this worker's rows of every batch
//		feed := func(step int) (trainer.Feed, error) {
//			x, y := rows(step, from, to)
//			return trainer.Feed{"x": x, "y": y}, nil
//		}
//		for r, err := range session.Train(ctx, 1000, feed) {
//			if err != nil {
//				return err
//			}
//			if job.IsChief() {
//				fmt.Println(r.Step, r.Loss)
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
// Package nn makes such a build function from layers: nn.Build(job.Seed(),
// layers).
//
// # How it trains
//
// Each batch is divided into equal parts, one per virtual worker. Every worker
// computes the gradients of one or more consecutive virtual workers. It
// computes them in parallel on replicas (copies) of the graph (package
// replica).
//
// Each variable has a shard holder: a server or a worker, as --arch says. The
// shard holder adds up the gradients of all virtual workers along a fixed
// tree, applies the optimiser and sends the new values to the workers (package
// exchange). So the weights have the same bits for any number of workers up to
// the number of virtual workers. --sync says how workers wait for each other;
// docs/synchronisation.md describes the modes.
//
// If a task dies or stops responding, the step fails on all other tasks with
// an error that names the lost task.
//
// With --ckpt-dir, shard holders save checkpoints during the training
// (packages checkpoint/saver and checkpoint/store). A program that is
// restarted under the same job name resumes from the newest complete
// checkpoint: Parallelize restores the variables, and [Session.Steps] begins
// with the checkpoint's step. Checkpoints also contain the recurrent state of
// the model, see [Model].
//
// # Where to look
//
//   - fields of [Config], flags, defaults and their conflicts: package config
//   - Gorgonia's operations that plx replaces with its own: package rewrite
//   - one copy of the graph, its feed, checks for NaN and Inf: package replica
//   - rows of embedding tables for a step, prefetch requests: package embedding
//   - when a checkpoint is made, and pausing the chief (worker 0) after it: package checkpoint/saver
//   - which task holds which rows, how tables are partitioned: package autotune
//   - summaries and timelines: package telemetry
//   - roles, signals, exit codes, messages to plx's agent: main.go and task.go in this package
//
// # Limits
//
// The package is independent of SSH and resource files: any launcher that sets
// the environment variables of package trainer/cluster may start the program.
// The package does not restart lost tasks; the launcher does.
//
// Some of Gorgonia's operations have hidden state. Package rewrite replaces
// some of them with plx's own versions. The trainer rejects all others with an
// error that names them. Gorgonia's initialisers are seeded by the clock; use
// those of [Job] for reproducible runs.
package trainer
