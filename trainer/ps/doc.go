// Package ps keeps variables on parameter servers and trains them
// synchronously.
//
// A server owns some of the variables. Every step it takes exactly one
// gradient per worker and variable, adds them in the fixed order of a Tree,
// applies the optimiser and sends the new values back, in one round trip:
//
//	// in a ps task, until ctx ends or every worker said goodbye
//	err := ps.Serve(ctx, listener, ps.ServerConfig{Self: task, Key: key, Workers: 4})
//
//	// in a worker; values and gradients are the worker's own memory
//	client, err := ps.Dial(ctx, ps.ClientConfig{Self: task, Key: key, Servers: addrs,
//		Declaration: d, Values: values, Gradients: gradients})
//	loss, err := client.Step(ctx, rate, loss)
//
// A process that trains alone uses [NewLocal], the same arithmetic without
// the network.
//
// # Synchrony
//
// A worker sends gradients of step k+1 only once it has every value of step
// k, and a server takes them only then. So nothing stale is ever added,
// nothing is added twice, and one worker that stops, stops all of them: within
// a bounded time every waiting worker is told who it was ([PeerError]).
//
// # What it refuses
//
// Peers that do not prove the job's secret, frames that were not declared,
// and workers that disagree on what they train or at which rate. A server
// serves one training; to train again, start again.
package ps
