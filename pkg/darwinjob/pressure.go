package darwinjob

// Pressure is how short of memory the machine is, as macOS says it.
type Pressure struct {
	Level            int   // 1 normal, 2 warn, 4 critical (kern.memorystatus_vm_pressure_level)
	AvailablePercent int   // kern.memorystatus_level
	SwapUsedBytes    int64 // vm.swapusage
}
