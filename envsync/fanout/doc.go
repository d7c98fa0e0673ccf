// Package fanout brings one stream of bytes to many hosts. The sender gives it to one
// host. That host passes it to two others while it receives it, each of these to two
// more, and so on: the sender's link carries the stream once, and a host's link once in
// and twice out.
//
// The sender talks to a command on each host over the command's standard input and
// output:
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
// # The conversation
//
// The sender writes a Route, one line of JSON. A host that may pass the stream on opens
// a port and answers "port N". A host without Route.From reads the stream from its
// standard input; another one dials the host at From. While it receives, a host writes
// "at N", the number of bytes that it has. If the other host is lost, it writes "lost N
// WHY", and the sender sends the stream from byte N on itself. At its end a host writes
// "ok". It then goes on to serve until the sender closes its standard input.
//
// A stream travels in frames: a length of 4 bytes, little-endian, and as many bytes. The
// length 0 ends the stream, and the length beat says that the sender lives but has
// nothing to send.
//
// # What it refuses
//
// It knows no files, and does not verify what it passes on: whoever reads the stream
// compares its hash. It does not decide who may connect: Network does. It takes no frame
// of more than 256 KiB, and no line of more than 1 KiB.
package fanout
