package protocol

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// lostPeer matches the error messages with which torch 1.13 to 2.x reports
// that a peer process has ended or does not respond. They come from Gloo,
// NCCL, NCCL's watchdog and the rendezvous store (TCPStore). lostPeer must not
// match messages of other libraries, such as a lost connection during a
// download.
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

// noise matches lines that a program may print after its error message: a C++
// stack trace and messages of the C++ runtime.
var noise = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\[rank[0-9]+\]: ?)?(frame #[0-9]+: .*|Exception raised from .*|Last error:|\s*|<.*>)$`)
})

// LossOfPeer searches the last lines of a program's stderr. It returns the
// line which says that the program failed because it lost another process of
// the job. It returns "" if there is no such line.
func LossOfPeer(lines []string) string {
	lines = slices.DeleteFunc(slices.Clone(lines), noise().MatchString)
	for _, line := range slices.Backward(lines[max(0, len(lines)-5):]) {
		if lostPeer().MatchString(line) {
			return line
		}
	}
	return ""
}
