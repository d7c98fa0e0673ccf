// Package trainer trains a Gorgonia model on every worker of a job as if it
// were one device.
//
// The single-device program and the distributed one are the same file. Run by
// itself it trains in one process; under plx the launcher gives it its role:
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
// A batch is cut into equal parts, one per virtual worker. Every worker computes
// the gradients of a contiguous range of virtual workers, on replicas of the graph
// side by side (package replica). The shard holder of a variable, a server or a
// worker as --arch says, adds the gradients along a fixed tree, applies the
// optimiser and answers with the new values (package exchange). So the weights
// are the same bits for any number of workers up to that of virtual workers.
// --sync says how far workers may drift apart; docs/synchronisation.md says what
// each mode promises.
//
// A peer that dies or falls silent ends the step of all others with an error
// that names it.
//
// With --ckpt-dir shard holders save checkpoints while training goes on (packages
// checkpoint/saver and checkpoint/store). A program that starts again under the
// same job name resumes from the newest complete one: Parallelize fills the
// variables, and [Replica.Steps] begins with its step. State that the program
// keeps itself becomes part of checkpoints with [Replica.Carry].
//
// # Where things are decided
//
//   - flags, defaults, and what contradicts what: package config
//   - one copy of the graph, its feed, gradients that are not finite: package replica
//   - rows of embedding tables for a step, prefetch requests: package embedding
//   - when a checkpoint is made, who holds the chief: package checkpoint/saver
//   - which task holds which rows, how tables are cut: package autotune
//   - summaries and timelines: package telemetry
//   - roles, signals, exit codes, what the agent is told: main.go and task.go here
//
// # What it refuses
//
// It knows nothing of SSH or resource files: any launcher that sets the contract
// of package trainer/cluster will do. It restarts nothing: the launcher starts
// processes again. It refuses operations with hidden state by name, Gorgonia's
// dropout and batch norm among them; package nn has replacements. Gorgonia's
// initialisers are seeded by the clock: use this package's for runs that can be
// repeated.
package trainer
