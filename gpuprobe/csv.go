package gpuprobe

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// maxIndex is the largest index of a GPU; a line with a larger one is no GPU.
const maxIndex = 1023

// parseGPU reads one line of the script's GPU query:
//
//	index, uuid, bus, driver, total, used, utilisation, mode[, mig], name
//
// Numbers are in MiB and per cent, without units. A field that the tool could
// not fill holds words in brackets instead. ok is false for a line that is
// something else, such as a message.
func parseGPU(line string, withMIG bool) (g GPU, ok bool) {
	count := 9
	if withMIG {
		count = 10
	}
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
		Index: index, UUID: told(f[1]), PCIBusID: canonicalBus(f[2]), Driver: told(f[3]),
		MemoryTotalMiB: amount(f[4]), MemoryUsedMiB: amount(f[5]), UtilizationPercent: amount(f[6]),
		ComputeMode: told(f[7]), Name: told(f[count-1]),
		MIGMode: withMIG && f[8] == "Enabled",
		Fault:   fault(f),
	}
	return g, true
}

// fault returns the reason if the fields describe a GPU that no program can use.
// "Unknown error" counts only in the memory and the name: some sound GPUs have
// it in their utilisation.
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

// told returns a field's value, "" if the tool did not report it.
func told(field string) string {
	if strings.HasPrefix(field, "[") || field == "N/A" || field == "ERR!" {
		return ""
	}
	return field
}

// amount parses a number with or without a unit. Other text gives Unknown.
func amount(field string) int {
	digits, _, _ := strings.Cut(field, " ")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}

// canonicalBus writes a PCI address as Linux does, "0000:3b:00.0":
// nvidia-smi's domains have eight digits, and four before driver 384.
func canonicalBus(address string) string {
	var domain, bus, device, function uint32
	if n, err := fmt.Sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function); n != 4 || err != nil {
		return ""
	}
	return fmt.Sprintf("%04x:%02x:%02x.%x", domain, bus, device, function)
}

// parseProcess reads one line of the query for compute processes:
//
//	gpu uuid, pid, used memory, name
//
// The UUID may be that of a MIG device.
func parseProcess(line string) (uuid string, p Process, ok bool) {
	f := strings.SplitN(line, ",", 4)
	if len(f) != 4 {
		return "", Process{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(f[1]))
	if err != nil || pid <= 0 {
		return "", Process{}, false
	}
	return clean(f[0]), Process{PID: pid, Name: told(clean(f[3])), MemoryMiB: amount(clean(f[2]))}, true
}

var (
	listedGPU = regexp.MustCompile(`^GPU \d+: .*\(UUID: (GPU-[^)]*)\)`)
	// Before driver 470 the UUID is MIG-GPU-<uuid>/<instance>/<instance>.
	listedMIG = regexp.MustCompile(`^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)]*)\)`)
)

// parseList reads `nvidia-smi -L` and returns the MIG devices by their GPU's
// UUID.
func parseList(lines []string) map[string][]MIG {
	devices := map[string][]MIG{}
	gpu := ""
	for _, line := range lines {
		if m := listedGPU.FindStringSubmatch(line); m != nil {
			gpu = clean(m[1])
		}
		m := listedMIG.FindStringSubmatch(line)
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
