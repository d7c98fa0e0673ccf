package protocol

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// lostPeer matches what torch 1.13 to 2.x reports if the process of a peer has ended or does
// not answer: Gloo, NCCL and its watchdog, and the store that ranks meet at. A lost
// connection of another library, such as one that downloads data, is none of these.
var lostPeer = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(strings.Join([]string{
		`gloo/transport/\S+ .*(Connection (closed|reset) by peer|Connection refused|Broken pipe|Socket closed|Timed out waiting|timeout)`,
		`remote process exited|ncclRemoteError|Connection closed by remote peer`,
		`NCCL.*(Connection (closed|reset) by peer|Socket recv failed|Broken pipe)`,
		`Watchdog caught collective operation timeout`,
		`(^|[ .])Dist(Network|Store)Error: `,
		`(^|[ .])DistBackendError: .*(Connection (closed|reset) by peer|Broken pipe|Timed out|timeout|[Ss]tore)`,
		`^(\[rank[0-9]+\]: ?)?(RuntimeError|terminate called .*|  what\(\)): +(\S+ )?(Connection (closed|reset) by peer|Broken pipe|Socket Timeout|Store timeout|Stop_waiting response is expected)`,
		`\[c10d\].*(recvValue|recvBytes|sendBytes|recvVector|socket).*([Cc]onnection|Broken pipe|failed to recv|[Tt]imed out)`,
	}, "|"))
})

// noise matches lines that come after the one that tells why a program ends: the stack of
// C++, and what its runtime adds.
var noise = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\[rank[0-9]+\]: ?)?(frame #[0-9]+: .*|Exception raised from .*|Last error:|\s*|<.*>)$`)
})

// LossOfPeer returns that of the last lines of a program's stderr by which the program
// reports that it failed because a peer did; "": it reports something else.
func LossOfPeer(lines []string) string {
	lines = slices.DeleteFunc(slices.Clone(lines), noise().MatchString)
	for _, line := range slices.Backward(lines[max(0, len(lines)-5):]) {
		if lostPeer().MatchString(line) {
			return line
		}
	}
	return ""
}
