package hosts

// Sweep removes what runs of this package that were killed outright have left: their
// cgroups with all in them, and their working directories. Every start does the
// same; this is for who wants to begin clean, or to end so.
func Sweep() error {
	_, err := openCache()
	return err
}
