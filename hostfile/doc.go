// Package hostfile turns the text of a resource file into hosts and devices,
// and hosts back into text.
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
//	store1: ps                   # a server and no worker
//	gpu05 slots=8                # as other launchers write it
//	gpu[06-09],login: 0-3        # five hosts with four GPUs each
//
// Start with [ParseFile] for a file or [ParseLines] for lines of the command
// line. [Join] joins the two and [Filter] narrows the result.
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
// Spaces and tabs may stand anywhere except inside an address and around the = of a
// variable. NAME has capitals, digits and _, and no digit first. A value in quotes may
// hold anything but that quote; word holds no quote, # or space. A byte order
// mark before the first line is skipped. A line has devices or slots, not both.
// exclude is allowed with slots, or without devices, where it means every GPU
// except those. max_slots is checked and has no other effect, because plx never
// starts more workers on a host than it has slots.
//
// # A port or an id
//
// In "host:2222" the number stands in the place of ids, but the user most likely
// means a port. Therefore a single number above 63, or a 22 that touches the
// colon, is refused unless a port stands before it. A port needs a second colon:
// "host:2222:" or "host:2222: 0,1".
//
// # Errors
//
// Reading stops at the first mistake. The error begins with file:line and says
// what was expected. It may carry one line of advice:
//
//	var advised interface{ Hint() string }
//	errors.As(err, &advised)
//
// Two lines name the same host if name (in any case) and port (22 by default)
// are equal. This is a mistake, even if the users differ.
//
// The package uses no network: it resolves no name and does not know which GPUs
// a host has. It reads no ssh config, expands no variable and no pattern but ranges of numbers, and
// includes no other file.
package hostfile
