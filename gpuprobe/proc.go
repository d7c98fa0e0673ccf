package gpuprobe

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// procGPUs reads the information files of /proc/driver/nvidia/gpus. Indices
// follow the bus address, as nvidia-smi's do. A GPU that the driver was told
// to leave out is left out.
func procGPUs(all []section) []GPU {
	var gpus []GPU
	for _, s := range all {
		if s.name != "information" {
			continue
		}
		facts := keyValues(s.lines)
		if strings.EqualFold(facts["GPU Excluded"], "yes") || strings.EqualFold(facts["GPU Blacklisted"], "yes") {
			continue
		}
		bus := canonicalBus(facts["Bus Location"])
		if bus == "" {
			bus = canonicalBus(s.word)
		}
		gpus = append(gpus, GPU{
			UUID: procUUID(facts["GPU UUID"]), Name: facts["Model"], PCIBusID: bus,
			MemoryTotalMiB: Unknown, MemoryUsedMiB: Unknown, UtilizationPercent: Unknown,
		})
	}
	slices.SortStableFunc(gpus, func(a, b GPU) int { return strings.Compare(a.PCIBusID, b.PCIBusID) })
	for i := range gpus {
		gpus[i].Index = i
	}
	return gpus
}

// procUUID returns "" for a UUID of question marks, which stands there until the
// driver first opens the GPU.
func procUUID(uuid string) string {
	if strings.Contains(uuid, "?") {
		return ""
	}
	return uuid
}

// keyValues reads lines "Key: value".
func keyValues(lines []string) map[string]string {
	facts := map[string]string{}
	for _, line := range lines {
		if key, value, ok := strings.Cut(line, ":"); ok {
			facts[clean(key)] = clean(value)
		}
	}
	return facts
}

var driverVersion = regexp.MustCompile(`^\d{2,4}\.\d+(\.\d+)*$`)

// procDriver finds the version in the first line of
// /proc/driver/nvidia/version.
func procDriver(line string) string {
	for word := range strings.FieldsSeq(line) {
		if driverVersion.MatchString(word) {
			return word
		}
	}
	return ""
}

// blasChoice chooses from lines "FILE PATH". It prefers OpenBLAS to MKL and MKL
// to BLIS, then a name with a version to one without, which is for compilers,
// then the first path.
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
		rest, ok := strings.CutPrefix(file, stem)
		switch {
		case ok && rest == "":
			return 2*i + 1
		case ok && rest[0] == '.':
			return 2*i + 2
		}
	}
	return 0
}

// owners reads the lines "uid PID UID" and the password file's lines of those
// users, and returns the user name, or else the number, of each process.
func owners(all []section) map[int]string {
	names := map[string]string{}
	passwd, _ := find(all, "passwd")
	for _, line := range passwd.lines {
		if f := strings.SplitN(line, ":", 4); len(f) == 4 {
			names[f[2]] = clean(f[0])
		}
	}
	users := map[int]string{}
	section, _ := find(all, "owners")
	for _, line := range section.lines {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "uid" {
			continue
		}
		pid, err := strconv.Atoi(f[1])
		if err != nil {
			continue
		}
		users[pid] = clean(f[2])
		if name := names[f[2]]; name != "" {
			users[pid] = name
		}
	}
	return users
}
