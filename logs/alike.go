package logs

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// differs matches what only tells tasks apart in lines that several of them write: folders
// of a host and of a task, ranks, addresses with their ports, ids of processes, addresses in
// memory, times and dates.
var differs = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)` + strings.Join([]string{
		`(/[^\s"':]+)?/\.plx/jobs/[^/\s"]+/[^/\s"]+/((worker|ps)[-:.][0-9]+/|[a-z]+/(worker|ps)[-:.][0-9]+/)?`,
		`\b((local|global|group|role)[_ -]?)?(rank|worker)[\]"']?\s?[:=#-]?\s?[0-9]+\b`,
		`\[?(::ffff:)?\b[0-9]{1,3}(\.[0-9]{1,3}){3}\b\]?(:[0-9]+)?`,
		`\[[0-9a-f:]*:[0-9a-f:]*\](:[0-9]+)?`,
		`\bport[:= ]+[0-9]+`,
		`\bp?pid[:= ]+[0-9]+`, `==[0-9]+==`,
		`\b0x[0-9a-f]+`,
		`\b[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}\b[t ]?`, `\b([iwef])?[0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2}[.,]?[0-9]*( +[0-9]+\b)?`,
		`[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?z?`,
	}, "|"))
})

// nccl matches host, process, thread and device before the lines of NCCL.
var nccl = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\S+:[0-9]+:[0-9]+ \[[0-9]+\] (NCCL )`) })

// alike returns a line without what only tells tasks apart. host finds the name of the task's
// host.
func alike(text []byte, host *regexp.Regexp) []byte {
	text = nccl().ReplaceAll(bytes.TrimRight(text, "\r"), []byte("$1"))
	text = differs().ReplaceAll(text, []byte("\x00"))
	return host.ReplaceAll(text, []byte("$1\x00"))
}

// wordOf matches the name of a host as a whole word, with a port, and its first label.
func wordOf(host string) *regexp.Regexp {
	label, _, _ := strings.Cut(host, ".")
	return regexp.MustCompile(`(^|[^A-Za-z0-9_.-])\[?(?:` + regexp.QuoteMeta(host) + "|" + regexp.QuoteMeta(label) + `)\b\]?(?::[0-9]+)?`)
}
