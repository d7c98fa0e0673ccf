package hostfile

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

const expectedRange = "expected numbers such as [1-4] or [01-04,07]"

// expand returns a line for each host that text names by a list or by ranges,
// such as gpu[01-04,07] or h1,h2. A single user at the beginning (alice@h1,h2)
// applies to all hosts.
func expand(text string) ([]string, error) {
	if slotList().MatchString(text) {
		return nil, mpirunListError(text)
	}
	list, rest := cutList(text)
	if !strings.ContainsAny(list, ",[") {
		return []string{text}, nil
	}
	user := ""
	if strings.Count(list, "@") == 1 {
		var names string
		if user, names, _ = strings.Cut(list, "@"); !strings.Contains(user, ",") {
			user, list = user+"@", names
		} else {
			user = ""
		}
	}
	var lines []string
	items := splitList(list)
	for _, item := range items {
		if _, digits := number(item); digits && len(items) > 1 {
			return nil, wrong("bad host name %s, expected a host before its GPU ids", quoted(list))
		}
		names, err := expandName(item)
		if err != nil {
			return nil, err
		}
		if len(lines)+len(names) > maxHosts {
			return nil, wrong("%s: more than %d hosts", quoted(list), maxHosts)
		}
		for _, name := range names {
			lines = append(lines, user+name+rest)
		}
	}
	return lines, nil
}

// cutList returns the list of hosts at the beginning of a line, without
// spaces, and the remaining text. The list ends at a colon or at a space.
// Colons and spaces within brackets do not end the list, nor do spaces next to
// a comma.
func cutList(text string) (list, rest string) {
	text = commaSpace().ReplaceAllString(text, ",")
	depth := 0
	for i, r := range text {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case depth == 0 && strings.ContainsRune(": \t", r):
			return text[:i], text[i:]
		}
	}
	return text, ""
}

var commaSpace = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[ \t]*,[ \t]*`) })

// splitList splits a list of hosts at its commas, except at commas in
// brackets.
func splitList(list string) (items []string) {
	depth, from := 0, 0
	for i, r := range list {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth == 0:
			items, from = append(items, list[from:i]), i+1
		}
	}
	return append(items, list[from:])
}

// expandName returns all host names that a word such as gpu[01-04,07] stands
// for. A bracket at the start of the word belongs to an IPv6 address, and
// expandName leaves it unchanged.
func expandName(word string) ([]string, error) {
	if word == "" {
		return nil, wrong("host missing beside a comma, expected one on both sides")
	}
	before, after, found := strings.Cut(word, "[")
	if !found || before == "" || strings.HasSuffix(before, "@") {
		return []string{word}, nil
	}
	inside, after, closed := strings.Cut(after, "]")
	if !closed {
		return nil, wrong("%s has no closing bracket, %s", quoted(word), expectedRange)
	}
	numbers, err := parseRanges(inside)
	if err != nil {
		return nil, err
	}
	ends := []string{after}
	if strings.Contains(after, "[") {
		if ends, err = expandName("x" + after); err != nil {
			return nil, err
		}
		for i, end := range ends {
			ends[i] = end[1:]
		}
	}
	if len(numbers)*len(ends) > maxHosts {
		return nil, wrong("%s: more than %d hosts", quoted(word), maxHosts)
	}
	var names []string
	for _, n := range numbers {
		for _, end := range ends {
			names = append(names, before+n+end)
		}
	}
	return names, nil
}

// parseRanges parses the text between the brackets of gpu[01-04,07]: numbers
// and ranges with commas between them. All numbers of a range get at least as
// many digits as the first: 01-03 stands for 01, 02, 03.
func parseRanges(text string) ([]string, error) {
	var all []string
	for word := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(word), "-")
		if !isRange {
			last = first
		}
		from, ok1 := number(first)
		to, ok2 := number(last)
		if !ok1 || !ok2 || from > to || len(first) > len(last) || len(last) > 9 {
			return nil, wrong("bad range %s, %s", quoted("["+text+"]"), expectedRange)
		}
		if len(all)+to-from >= maxHosts {
			return nil, wrong("range %s: more than %d hosts", quoted("["+text+"]"), maxHosts)
		}
		for n := from; n <= to; n++ {
			all = append(all, fmt.Sprintf("%0*d", len(first), n))
		}
	}
	return all, nil
}

// slotList matches a list of hosts and slots in the format of mpirun -H, such
// as h1:2,h2:2.
var slotList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[^\s:,\[\]]+:[0-9]+(,[^\s:,\[\]]*[A-Za-z.][^\s:,\[\]]*:[0-9]+)+$`)
})

// mpirunListError returns the error for a list in the format of mpirun -H. Its
// hint shows the equivalent lines of a resource file.
func mpirunListError(text string) error {
	var lines []string
	for host := range strings.SplitSeq(text, ",") {
		name, slots, _ := strings.Cut(host, ":")
		lines = append(lines, fmt.Sprintf("%q", name+" slots="+slots))
	}
	return hinted("a line, or a --host, for each: "+strings.Join(lines, " and "), "%s are hosts with their slots, expected one host and its devices", quoted(text))
}

// slotsLike matches a line such as node1:4, whose only GPU id touches the
// colon. The user may mean 4 slots, as in other launchers.
var slotsLike = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([^\s:]+|[^\s:\[]*\[[^\s\]]+\][^\s:]*):([1-9][0-9]?)(\s|$)`)
})

// Warnings returns a warning for each line that the user may have meant
// differently: in other launchers node1:4 means four slots, in plx it means
// GPU 4. lines holds the values of --host. Warnings reads the resource files
// again, because hosts do not contain the text of their lines.
func Warnings(hosts []Host, lines []string) (notes []string) {
	texts, noted := map[string][]string{"--host": lines}, map[Position]bool{}
	for _, h := range hosts {
		id, ok := h.onlyGPU()
		if !ok || h.Port != 0 || noted[h.Pos] {
			continue
		}
		noted[h.Pos] = true
		if texts[h.Pos.File] == nil {
			file, _ := os.ReadFile(h.Pos.File) // ignore the error: the parser has read the file before
			texts[h.Pos.File] = strings.Split(strings.TrimPrefix(string(file), "\ufeff"), "\n")
		}
		if h.Pos.Line > len(texts[h.Pos.File]) {
			continue
		}
		text, _, _ := content(texts[h.Pos.File][h.Pos.Line-1]) // ignore the error: the parser has accepted the line before
		if m := slotsLike().FindStringSubmatch(text); m != nil && m[2] == strconv.Itoa(id) {
			notes = append(notes, fmt.Sprintf(`%s: %s:%d is GPU %d of the host, for one worker; %d workers are written "%s slots=%d", and GPU %d "%s: %d"`,
				h.Pos, m[1], id, id, id, m[1], id, id, m[1], id))
		}
	}
	return notes
}

// onlyGPU returns the index of the host's only GPU. ok is false unless the
// host's line has exactly one GPU id and this id is an index.
func (h Host) onlyGPU() (int, bool) {
	if h.Devices.Kind != GPUs || len(h.Devices.IDs) != 1 {
		return 0, false
	}
	return h.Devices.IDs[0].Index()
}
