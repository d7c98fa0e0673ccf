// Package replica computes a model: a [Replica] is one copy of its graph, used
// by one goroutine at a time, and a [Group] are the replicas of one worker.
//
//	g, err := replica.NewGroup(build, rows, n)          // n graphs, one set of variables
//	err = g.Each(ctx, virtualWorkers, func(r *replica.Replica, index, vw int) error {
//		... r.Load(feed, vw), r.SetGradient(i, memory) ...
//		sums, err := r.Run(call, ready)             // ready(i): gradient i is complete
//		...
//	})
//
// Gorgonia's operations carry state, so replicas share no graph. They share the
// memory of variables, which the caller changes between steps.
//
// # What it refuses
//
// It sends nothing and applies no update. It knows rows of embedding tables as
// inputs only, see package embedding.
package replica
