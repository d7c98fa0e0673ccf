// Package fanout copies one stream of bytes from a sender to many hosts. The
// sender uploads the stream to one host. While that host receives the stream,
// it forwards the stream to two other hosts, each of these forwards it to two
// more, and so on. The sender uploads the stream once; a host downloads it
// once and uploads it at most twice.
//
// The sender talks to a command on each host over the command's standard input
// and output:
//
//	group := fanout.NewGroup(spool, len(hosts), false, 0, 0)
//	err := group.Send(ctx, fanout.Host{Name: "gpu01", Addr: "10.0.0.1"}, stdin, stdout, fanout.Watch{...})
//
// and the command is
//
//	part, err := fanout.Receive(ctx, stdin, stdout, folder, network)
//	...                       // reads the stream from part
//	err = part.Finish()
//
// # The protocol
//
// The sender first writes a Route, one line of JSON. A host whose Route.Pass
// is true opens a port and replies "port N". If Route.From is empty, the host
// reads the stream from its standard input; otherwise the host dials the host
// at Route.From. While a host receives, it writes "at N", where N is the
// number of bytes received so far. If the connection to the host at Route.From
// fails, the receiving host writes "lost N WHY", and the sender itself sends
// the rest of the stream, from byte N. After the last byte a host writes "ok".
// The host then keeps serving other hosts until the sender closes its standard
// input.
//
// A stream is sent in frames. A frame is a length of 4 bytes, little-endian,
// followed by that number of bytes. The length 0 ends the stream. The length
// 0xffffffff is a heartbeat: the sender is alive but has no data to send.
//
// # What it refuses
//
// The package does not interpret the stream and does not verify it: the reader
// of the stream must compare its hash. The package does not decide which hosts
// may connect: the caller's Network does. It rejects a frame of more than 256
// KiB and a line of more than 1 KiB.
package fanout
