package gpuprobe

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Use is how much a GPU is used.
type Use struct {
	GPU                 // as far as UseScript asks: its processes have no User
	Temperature int     // in degrees Celsius; Unknown if the tool does not report it
	Power       float64 // in watts; Unknown if the tool does not report it
}

// ID is the UUID of the GPU or, without one, its bus address.
func (u Use) ID() string { return cmp.Or(u.UUID, u.PCIBusID) }

// NoTool is the exit status of UseScript on a host that has no tool for GPUs.
const NoTool = 127

// UseScript is a shell script that prints how much each GPU of the host is used, for ParseUse.
// It is quicker than Here, since it asks for nothing that stays the same. The folders are those in
// which probe.sh looks too.
func UseScript() string {
	var there, commands []string
	for _, f := range vendors() {
		tool, _, _ := strings.Cut(f.use, " ")
		there = append(there, "command -v "+tool+" >/dev/null")
		commands = append(commands, f.use)
	}
	return "PATH=$PATH:/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/opt/bin:/run/nvidia/driver/usr/bin:/usr/lib/wsl/lib:/opt/rocm/bin:/run/current-system/sw/bin\n" +
		strings.Join(there, " || ") + " || exit " + strconv.Itoa(NoTool) + "\n" +
		strings.Join(append(commands, "exit 1"), " ||\n") + "\n"
}

// ParseUse reads what UseScript prints, in index order. At most one vendor's tool has answered.
func ParseUse(text string) []Use {
	for _, f := range vendors() {
		if all := f.parseUse(text); len(all) > 0 {
			slices.SortStableFunc(all, func(a, b Use) int { return cmp.Compare(a.Index, b.Index) })
			return all
		}
	}
	return nil
}

// parseNVIDIAUse reads lines of GPUs, "TEMPERATURE, POWER, " before what parseGPU reads, and then those of
// processes, which parseProcess reads.
func parseNVIDIAUse(text string) (all []Use) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "GPU-") || strings.HasPrefix(line, "MIG-") {
			uuid, p, ok := parseProcess(line)
			if i := slices.IndexFunc(all, func(u Use) bool { return u.owns(uuid) }); ok && i >= 0 {
				all[i].add(uuid, p)
			}
			continue
		}
		fields := strings.SplitN(line, ",", 3)
		if len(fields) != 3 || len(all) > maxIndex {
			continue
		}
		if g, ok := parseGPU(fields[2], 0); ok {
			all = append(all, Use{g, amount(clean(fields[0])), watts(clean(fields[1]))})
		}
	}
	return all
}

// parseROCmUse reads the JSON of rocm-smi. Which sensors a GPU has, and what they are called, differs
// between models: the hottest counts.
func parseROCmUse(text string) (all []Use) {
	lines := strings.Split(text, "\n")
	gpus, _ := readROCmSMI(sections{{name: "rocm", lines: lines}})
	whole, _ := decoded(lines).(map[string]any)
	for _, g := range gpus {
		u := Use{g, Unknown, Unknown}
		fields, _ := whole["card"+strconv.Itoa(g.Index)].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			switch value := object(fields).text(key); {
			case strings.HasPrefix(key, "Temperature (Sensor "):
				u.Temperature = max(u.Temperature, int(watts(value)))
			case strings.HasSuffix(key, "Package Power (W)") && u.Power == Unknown:
				u.Power = watts(value)
			}
		}
		all = append(all, u)
	}
	return all
}

// watts parses a number with decimals. Other text gives Unknown.
func watts(field string) float64 {
	n, err := strconv.ParseFloat(field, 64)
	if err != nil || !(n >= 0 && n < 1<<20) {
		return Unknown
	}
	return n
}
