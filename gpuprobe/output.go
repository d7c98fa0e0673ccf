package gpuprobe

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// section is a part of the probe script's output. It stands between two lines
// that begin with a random word, the script's mark.
type section struct {
	// name and word are the two words that follow the mark on the line that
	// begins the section. word is empty if only a name follows.
	name, word string
	// status is the exit status of the program that printed the section. It is
	// "late" if the script stopped waiting for the program, and empty if no
	// program ran.
	status string
	lines  []string
}

// sections is the complete output of the probe script, in order.
type sections []section

// parseSections splits the script's output into sections. The lines that begin
// and end a section begin with mark. Lines outside sections are dropped.
func parseSections(text, mark string) (all sections) {
	open := false
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.TrimSuffix(line, "\r")
		own, isOwn := strings.CutPrefix(line, mark+" ")
		words := strings.Fields(own)
		switch {
		case isOwn && len(words) >= 2 && words[0] == "begin":
			all, open = append(all, section{name: words[1], word: strings.Join(words[2:], " ")}), true
		case isOwn:
			if len(words) == 2 && words[0] == "end" && len(all) > 0 {
				all[len(all)-1].status = words[1]
			}
			open = false
		case open && strings.TrimSpace(line) != "":
			last := &all[len(all)-1]
			last.lines = append(last.lines, line)
		}
	}
	return all
}

func (all sections) has(name string) bool {
	return slices.ContainsFunc(all, func(s section) bool { return s.name == name })
}

// find returns the first section with the given name. If there is none, it
// returns an empty section.
func (all sections) find(name string) section {
	if i := slices.IndexFunc(all, func(s section) bool { return s.name == name }); i >= 0 {
		return all[i]
	}
	return section{}
}

// first returns the first line of the named section, made safe for a terminal.
// It returns "" if the section is missing or empty.
func (all sections) first(name string) string {
	if lines := all.find(name).lines; len(lines) > 0 {
		return clean(lines[0])
	}
	return ""
}

// clean makes a short text from a host safe to print on a terminal. The result
// contains only printable characters and at most about 300 bytes.
func clean(s string) string {
	const limit = 300
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}

// maxIndex is the largest accepted index of a GPU. A line of output with a
// larger number does not describe a GPU.
const maxIndex = 1023

// parseGPU parses one line of nvidia-smi's GPU query:
//
//	index, uuid, bus, driver, total, used, utilisation, mode[, mig[, capability]], name
//
// optional is the number of optional fields on the line: 0, 1 or 2. Numbers
// have no unit and mean MiB or per cent. If the tool does not know a field,
// the field contains words in brackets. ok is false for any other line, such
// as an error message.
func parseGPU(line string, optional int) (g GPU, ok bool) {
	count := 9 + optional
	f := strings.SplitN(line, ",", count)
	if len(f) != count {
		return GPU{}, false
	}
	for i := range f {
		f[i] = clean(f[i])
	}
	index, err := strconv.Atoi(f[0])
	if err != nil || index < 0 || index > maxIndex {
		return GPU{}, false
	}
	g = GPU{
		Index: index, UUID: reported(f[1]), PCIBusID: canonicalBus(f[2]), Driver: reported(f[3]),
		MemoryTotalMiB: amount(f[4]), MemoryUsedMiB: amount(f[5]), UtilizationPercent: amount(f[6]),
		ComputeMode: reported(f[7]), Name: reported(f[count-1]),
		MIGMode: optional >= 1 && f[8] == "Enabled",
		Fault:   fault(f),
	}
	if optional >= 2 {
		g.ComputeCapability = shortVersion(f[9])
	}
	return g, true
}

// fault returns the reason why no program can use the GPU that the fields
// describe, or "" if programs can use it. The text "Unknown error" is such a
// reason only in the fields for memory and name, because some working GPUs
// report it as their utilisation.
func fault(fields []string) string {
	for i, f := range fields {
		low := strings.ToLower(f)
		unreadable := strings.Contains(low, "unknown error") || low == "err!"
		switch {
		case strings.Contains(low, "requires reset"), strings.Contains(low, "is lost"):
			return strings.Trim(f, "[]")
		case unreadable && (i == 4 || i == 5):
			return "nvidia-smi cannot read its memory: " + strings.Trim(f, "[]")
		case unreadable && i == len(fields)-1:
			return "nvidia-smi cannot read its name: " + strings.Trim(f, "[]")
		}
	}
	return ""
}

// reported returns the value of a field, or "" if the tool did not report the
// value.
func reported(field string) string {
	if strings.HasPrefix(field, "[") || field == "N/A" || field == "ERR!" {
		return ""
	}
	return field
}

// amount parses a number with or without a unit. It returns Unknown for any
// other text.
func amount(field string) int {
	digits, _, _ := strings.Cut(field, " ")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}

// canonicalBus formats a PCI address as Linux does: "0000:3b:00.0". nvidia-smi
// prints the domain, the first number, with eight digits, and before driver
// 384 with four.
func canonicalBus(address string) string {
	var domain, bus, device, function uint32
	if n, err := fmt.Sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function); n != 4 || err != nil {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

// parseProcess parses one line of nvidia-smi's query for compute processes:
//
//	gpu uuid, pid, used memory, name
//
// The UUID may be the UUID of a MIG device.
func parseProcess(line string) (uuid string, p Process, ok bool) {
	f := strings.SplitN(line, ",", 4)
	if len(f) != 4 {
		return "", Process{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(f[1]))
	if err != nil || pid <= 0 {
		return "", Process{}, false
	}
	return clean(f[0]), Process{PID: pid, Name: reported(clean(f[3])), MemoryMiB: amount(clean(f[2]))}, true
}

var (
	listedGPU = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^GPU \d+: .*\(UUID: (GPU-[^)]*)\)`) })
	// Before driver 470 the UUID of a MIG device is
	// MIG-GPU-<uuid>/<instance>/<instance>.
	listedMIG = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]*)\)`)
	})
)

// parseList parses the output of `nvidia-smi -L` and returns the MIG devices
// by the UUID of their GPU.
func parseList(lines []string) map[string][]MIG {
	devices := map[string][]MIG{}
	gpu := ""
	for _, line := range lines {
		if m := listedGPU().FindStringSubmatch(line); m != nil {
			gpu = clean(m[1])
		}
		m := listedMIG().FindStringSubmatch(line)
		if m == nil || gpu == "" {
			continue
		}
		index, err := strconv.Atoi(m[2])
		if err != nil || index > maxIndex {
			continue
		}
		devices[gpu] = append(devices[gpu], MIG{Index: index, Profile: clean(m[1]), UUID: clean(m[3])})
	}
	return devices
}

// procGPUs returns the GPUs described in /proc/driver/nvidia/gpus, except
// those that the driver is configured to exclude. It numbers the GPUs in the
// order of their bus addresses, as nvidia-smi does.
func procGPUs(all sections) []GPU {
	var gpus []GPU
	for _, s := range all {
		if s.name != "information" {
			continue
		}
		facts := keyValues(s.lines)
		if strings.EqualFold(facts["GPU Excluded"], "yes") || strings.EqualFold(facts["GPU Blacklisted"], "yes") {
			continue
		}
		g := GPU{
			UUID: facts["GPU UUID"], Name: facts["Model"], PCIBusID: cmp.Or(canonicalBus(facts["Bus Location"]), canonicalBus(s.word)),
			MemoryTotalMiB: Unknown, MemoryUsedMiB: Unknown, UtilizationPercent: Unknown,
		}
		if strings.Contains(g.UUID, "?") { // the driver shows question marks until it first opens the GPU
			g.UUID = ""
		}
		gpus = append(gpus, g)
	}
	slices.SortStableFunc(gpus, func(a, b GPU) int { return strings.Compare(a.PCIBusID, b.PCIBusID) })
	for i := range gpus {
		gpus[i].Index = i
	}
	return gpus
}

// keyValues parses lines of the form "Key: value".
func keyValues(lines []string) map[string]string {
	facts := map[string]string{}
	for _, line := range lines {
		if key, value, ok := strings.Cut(line, ":"); ok {
			facts[clean(key)] = clean(value)
		}
	}
	return facts
}

var majorMinor = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d{1,3}\.\d{1,3}$`) })

// shortVersion returns the first word of field if the word is a version such
// as "12.4". It returns "" for any other field.
func shortVersion(field string) string {
	word, _, _ := strings.Cut(field, " ")
	if !majorMinor().MatchString(word) {
		return ""
	}
	return word
}

// cudaVersion returns the driver's CUDA version from the output of nvidia-smi
// -q. Drivers before 410 do not report the version. Drivers from 610 on report
// it under two names, and will drop the older name.
func cudaVersion(lines []string) string {
	facts := keyValues(lines)
	return cmp.Or(shortVersion(facts["CUDA UMD Version"]), shortVersion(facts["CUDA Version"]))
}

var driverVersion = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\d{2,4}\.\d+(\.\d+)*$`) })

// procDriver returns the driver version in line, the first line of
// /proc/driver/nvidia/version.
func procDriver(line string) string {
	for word := range strings.FieldsSeq(line) {
		if driverVersion().MatchString(word) {
			return word
		}
	}
	return ""
}

// blasChoice chooses the best BLAS library from lines of the form "FILE PATH".
// It prefers OpenBLAS to MKL, and MKL to BLIS. Within one library, it prefers
// a file name with a version, because a name without a version is meant for
// linkers. Among equally good files it takes the first path.
func blasChoice(lines []string) (file, path string) {
	best := 0
	for _, line := range lines {
		f, p, ok := strings.Cut(clean(line), " ")
		if rank := blasRank(f); ok && rank > best {
			best, file, path = rank, f, p
		}
	}
	return file, path
}

func blasRank(file string) int {
	for i, stem := range []string{"libblis-mt.so", "libblis.so", "libmkl_rt.so", "libopenblas.so"} {
		if file == stem {
			return 2*i + 1
		}
		if strings.HasPrefix(file, stem+".") {
			return 2*i + 2
		}
	}
	return 0
}

// owners returns the name of the user of each process, indexed by process id.
// It reads the script's lines "uid PID UID" and its lines of the password
// file. If the password file does not name a user, the value is the numeric
// UID.
func owners(all sections) map[int]string {
	names := map[string]string{}
	for _, line := range all.find("passwd").lines {
		if f := strings.SplitN(line, ":", 4); len(f) == 4 {
			names[f[2]] = clean(f[0])
		}
	}
	users := map[int]string{}
	for _, line := range all.find("owners").lines {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "uid" {
			continue
		}
		if pid, err := strconv.Atoi(f[1]); err == nil {
			users[pid] = cmp.Or(names[f[2]], clean(f[2]))
		}
	}
	return users
}
