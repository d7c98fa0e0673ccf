// Package peers connects the tasks of a job with each other. Each task has one
// listener. A task that dials it proves its identity and names the purpose of
// the connection.
//
//	listener := peers.Listen(ln, peers.Config{Self: self, Key: key, Workers: 4, Servers: 1, Logf: logf})
//	defer listener.Close()
//	listener.Handle("owner", func(p peers.Peer) { serve(p.Task, p.Conn) })
//
//	session, err := peers.Open(ctx, config, cluster.Task{Role: cluster.PS}, addr, "owner", silence)
//
// After the proof, each end wraps the connection in a [Session]. A session
// sends and receives frames of package wire. If one end stops, its session
// reports the reason to the other end.
//
// # Names
//
// A proof covers the purpose of the connection. In the protocol of package
// cluster, "worker:3/owner" proves itself to "ps:0/owner". So an attacker
// cannot redirect a connection to another purpose, and one port serves all
// purposes.
//
// # Refused connections
//
// The listener refuses connections that do not prove the secret of this job
// and generation (one start of all tasks), and tasks that the job does not
// have. A connection whose purpose has no handler yet waits. Only one
// connection per task and purpose may wait; the listener refuses a second one.
// A flood of unauthenticated connections costs bounded memory and one log line
// per minute.
//
// If the job was started with --tls, package channel encrypts all data after
// the proof.
package peers
