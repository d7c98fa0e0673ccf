// Package peers joins the tasks of a job: one listener per task, on which
// other tasks prove who they are and name the purpose of the connection.
//
//	listener := peers.Listen(ln, peers.Config{Self: self, Key: key, Workers: 4, Servers: 1, Logf: logf})
//	defer listener.Close()
//	listener.Handle("owner", func(p peers.Peer) { serve(p.Task, p.Conn) })
//
//	session, err := peers.Open(ctx, config, cluster.Task{Role: cluster.PS}, addr, "owner", silence)
//
// After the proof each end wraps the connection in a [Session]. A session sends
// and receives frames of package wire. It tells the other end why this end stops.
//
// # Names
//
// The purpose of a connection is part of what is proved. In the protocol of
// package cluster, "worker:3/owner" proves itself to "ps:0/owner". So nobody
// can turn a connection to another purpose, and one port serves all purposes.
//
// # What it refuses
//
// The listener refuses connections that do not prove the secret of this job
// and generation, and tasks that the job does not have. A connection whose
// purpose has no handler yet waits, one per task and purpose; the listener
// refuses a second one. Floods of unauthenticated connections cost bounded
// memory and one log line a minute.
//
// Package channel encrypts what follows the proof, if the job has --tls.
package peers
