// Package trainer trains a Gorgonia model on every worker of a job as if it
// were one device.
//
// The single-device program and the distributed one are the same file. Run by
// itself it trains in one process; under plx the launcher gives it its role:
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
// Package nn makes such a function of layers: nn.Build(job.Seed(), layers).
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
// variables, and [Session.Steps] begins with its step. Recurrent state
// of the model is part of checkpoints, see [Model].
//
// # Where things are decided
//
//   - fields of [Config], flags, defaults, and what contradicts what: package config
//   - operations of Gorgonia's that plx computes by its own: package rewrite
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
// processes again. Of Gorgonia's operations with hidden state, it replaces those that
// plx has too (package rewrite) and refuses the others by name. Gorgonia's
// initialisers are seeded by the clock: use those of [Job] for runs that can be
// repeated.
package trainer
