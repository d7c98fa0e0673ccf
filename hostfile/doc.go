// Package hostfile parses resource files, which list the hosts and devices of
// a job, and writes hosts back as text.
//
// Each line of a resource file names one host and the devices that a job may
// use on it:
//
//	# two hosts with GPUs, one without, and a server
//	10.0.0.1: 0,1,2,3            # GPU ids
//	gpu02.example.org            # every GPU of the host
//	alice@10.0.0.3:2222: cpu*2   # two CPU workers
//	[fd00::4]: 0,1 addr=10.1.0.4 # other hosts dial 10.1.0.4
//	gpu04: 0 nic=ib0 A="x y"     # data goes over ib0; a variable for its tasks
//	store1: ps                   # a parameter server and no worker
//	gpu05 slots=8                # the format of other launchers
//	gpu[06-09],login: 0-3        # five hosts with four GPUs each
//
// Use [ParseFile] for a file and [ParseLines] for lines of the command line.
// [Join] concatenates the two results and [Filter] selects hosts and devices.
//
// # Grammar
//
//	file     = { line } ;
//	line     = [ host ] [ "#" comment ] ( LF | CRLF | end of file ) ;
//	host     = address { "," address } [ ":" [ port ":" ] [ devices ] ] { option | variable } ;
//	address  = [ user "@" ] ( name | IPv4 | "[" IPv6 "]" ) ;
//	name     = text { "[" range { "," range } "]" [ text ] } ;
//	range    = digits [ "-" digits ] ;
//	devices  = ids | "cpu" [ "*" count ] | "ps" ;
//	ids      = id [ "-" id ] { "," id [ "-" id ] } ;
//	option   = "slots" "=" count | "max_slots" "=" count
//	         | "addr" "=" ( IPv4 | IPv6 | "[" IPv6 "]" )
//	         | "nic" "=" interface
//	         | "exclude" "=" ids ;
//	variable = NAME "=" ( word | '"' text '"' | "'" text "'" ) ;
//	id       = "0" to "63" | uuid ;
//	uuid     = ( "GPU-" | "MIG-" ) digits of a UUID, or the first of them ;
//	port     = "1" to "65535" ;
//	count    = "1" to "4096" ;
//
// Spaces and tabs are allowed everywhere except inside an address and around
// the = of a variable. NAME consists of capitals, digits and _, and does not
// begin with a digit. A quoted value may contain every character except its
// quote; word contains no quote, # or space. A byte order mark before the
// first line is skipped.
//
// A line has either devices or slots. exclude is allowed with slots. It is
// also allowed without devices, and then means every GPU of the host except
// the listed ones. max_slots is checked but has no effect, because plx never
// starts more workers on a host than it has slots.
//
// # A port or an id
//
// In "host:2222" the number is in the place of GPU ids, but the user probably
// means a port. Therefore the parser rejects a single number above 63, and
// also a 22 that touches the colon, unless a port stands before it. A port
// needs a second colon: "host:2222:" or "host:2222: 0,1".
//
// # Errors
//
// Parsing stops at the first mistake. The error begins with file:line and
// states what was expected. It may have a hint of one line:
//
//	var advised interface{ Hint() string }
//	errors.As(err, &advised)
//
// Two lines name the same host if the names are equal, ignoring case, and the
// ports are equal (22 if not given). Two lines for the same host are an error,
// even with different users.
//
// The package does not use the network: it resolves no names and does not know
// which GPUs a host has. It does not read the ssh config, include other files
// or expand environment variables. The only patterns are ranges of numbers.
package hostfile
