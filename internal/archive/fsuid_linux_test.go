package archive_test

import "golang.org/x/sys/unix"

// setfsuid sets as whom this thread uses files.
func setfsuid(uid int) error {
	_, err := unix.SetfsuidRetUid(uid)
	return err
}
