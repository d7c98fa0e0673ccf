// Package hostfile turns the text of a resource file into hosts and devices,
// and hosts back into text.
//
// A resource file names one host per line and what of it a job may use:
//
//	# two hosts with GPUs, one without, and a server
//	10.0.0.1: 0,1,2,3            # GPU ids
//	gpu02.example.org            # every GPU found there
//	alice@10.0.0.3:2222: cpu*2   # two CPU workers
//	[fd00::4]: 0,1 addr=10.1.0.4 # other hosts dial 10.1.0.4
//	store1: ps                   # a server and no worker
//	gpu05 slots=8                # as other launchers write it
//
// Start with [ParseFile] or, for lines given on the command line,
// [ParseLines]; put the two together with [Join], narrow the result with
// [Filter].
//
// # Grammar
//
//	file     = { line } ;
//	line     = [ host ] [ "#" comment ] ( LF | CRLF | end of file ) ;
//	host     = address [ ":" [ port ":" ] [ devices ] ] { option } ;
//	address  = [ user "@" ] ( name | IPv4 | "[" IPv6 "]" ) ;
//	devices  = ids | "cpu" [ "*" count ] | "ps" ;
//	ids      = id { "," id } ;
//	option   = "slots" "=" count | "max_slots" "=" count
//	         | "addr" "=" ( IPv4 | IPv6 | "[" IPv6 "]" )
//	         | "exclude" "=" ids ;
//	id       = "0" to "63" ;
//	port     = "1" to "65535" ;
//	count    = "1" to "4096" ;
//
// Spaces and tabs may stand around everything but inside an address. A byte
// order mark before the first line is skipped. Devices and slots exclude each
// other; exclude goes with slots or with no devices at all, where it means
// every GPU but those. max_slots is checked and otherwise has no effect, since
// plx never starts more workers on a host than it has slots.
//
// # A port or an id
//
// In "host:2222" the number stands where ids stand, but was most likely meant
// as a port. A single number above 63, or a 22 that touches the colon, is
// therefore refused unless a port stands before it. A port is followed by a
// second colon: "host:2222:" or "host:2222: 0,1".
//
// # Errors
//
// Reading stops at the first mistake. Its error begins with file:line, says
// what was expected, and may carry one line of advice, found with
//
//	var advised interface{ Hint() string }
//	errors.As(err, &advised)
//
// Hosts are compared by name, whatever its case, and port (22 where none is
// given); the same host twice is a mistake whatever the users.
//
// The package knows no network: it resolves no name and does not know which
// GPUs a host has. It reads no ssh config, expands no variable and no pattern,
// and includes no other file.
package hostfile
