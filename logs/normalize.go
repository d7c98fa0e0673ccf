package logs

import (
	"bytes"
	"regexp"
	"strings"
	"sync"
)

// taskParts matches the parts of a line that differ between tasks that print the
// same message: paths of a job's folder, ranks, IP addresses and ports,
// process ids, memory addresses, dates and times.
var taskParts = sync.OnceValue(func() *regexp.Regexp {
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

// nccl matches the beginning of a line of NCCL's log: host name, process id,
// thread id and device number.
var nccl = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\S+:[0-9]+:[0-9]+ \[[0-9]+\] (NCCL )`) })

// normalized replaces the parts of a line that differ between tasks by a NUL byte,
// so that equal messages of several tasks compare as equal. host matches the
// name of the task's host.
func normalized(text []byte, host *regexp.Regexp) []byte {
	text = nccl().ReplaceAll(bytes.TrimRight(text, "\r"), []byte("$1"))
	text = taskParts().ReplaceAll(text, []byte("\x00"))
	return host.ReplaceAll(text, []byte("$1\x00"))
}

// hostPattern returns a pattern that matches a host's full name or its first label
// as a whole word, with an optional port after the name.
func hostPattern(host string) *regexp.Regexp {
	label, _, _ := strings.Cut(host, ".")
	return regexp.MustCompile(`(^|[^A-Za-z0-9_.-])\[?(?:` + regexp.QuoteMeta(host) + "|" + regexp.QuoteMeta(label) + `)\b\]?(?::[0-9]+)?`)
}
