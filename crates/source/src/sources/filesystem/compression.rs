//! The compression of a file system, by the options that mountinfo shows for it.
//!
//! Documents: btrfs(5), Documentation/filesystems/{f2fs,ubifs}.rst of the kernel and bcachefs(8).
//! If the options do not show it (zfs, squashfs, erofs, ntfs, anything on a network), it is not
//! guessed.

/// Types that never compress.
const NEVER: &[&str] = &[
    "ext2", "ext3", "ext4", "xfs", "tmpfs", "vfat", "msdos", "exfat", "jfs", "nilfs2", "gfs2",
    "ocfs2", "minix", "zonefs",
];
/// Longest value, in bytes; a longer one is no known algorithm.
const VALUE_BYTES_MAX: usize = 32;

/// The algorithm with its level, like `zstd:3`; `none`; or nothing if it is unknown.
pub(super) fn of(fstype: &str, options: &[u8]) -> Option<String> {
    let none = || Some("none".to_owned());
    if NEVER.contains(&fstype) {
        return none();
    }
    match fstype {
        "btrfs" => match value(options, &[b"compress", b"compress-force"]) {
            Some(value) => name(value),
            // Single files may still be compressed by a property.
            None => none(),
        },
        // The option is shown whenever the file system has the feature.
        "f2fs" => match value(options, &[b"compress_algorithm"]) {
            Some(value) => name(value),
            None => none(),
        },
        // Without the option, the compression was chosen when the file system was made.
        "ubifs" => name(value(options, &[b"compr"])?),
        "bcachefs" => name(value(
            options,
            &[b"compression", b"background_compression"],
        )?),
        _ => None,
    }
}

/// The text after `key=` in a list with commas.
fn value<'a>(options: &'a [u8], keys: &[&[u8]]) -> Option<&'a [u8]> {
    options.split(|b| *b == b',').find_map(|option| {
        let equals = option.iter().position(|b| *b == b'=')?;
        keys.contains(&&option[..equals])
            .then(|| &option[equals + 1..])
    })
}

fn name(value: &[u8]) -> Option<String> {
    let is_plain = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b':' | b'-' | b'_');
    let fits = !value.is_empty() && value.len() <= VALUE_BYTES_MAX && value.iter().all(is_plain);
    String::from_utf8(value.to_vec()).ok().filter(|_| fits)
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn by_type_and_options() {
        let check = |fstype: &str, options: &str, expect: Option<&str>| {
            let got = of(fstype, options.as_bytes());
            assert_eq!(got.as_deref(), expect, "{fstype} {options}");
        };
        check("ext4", "rw,errors=remount-ro", Some("none"));
        check("xfs", "rw", Some("none"));
        check("tmpfs", "rw,size=4k", Some("none"));
        check("btrfs", "rw,compress=zstd:3,space_cache=v2", Some("zstd:3"));
        check("btrfs", "rw,compress-force=lzo", Some("lzo"));
        check("btrfs", "rw,subvol=/compress=x", Some("none"));
        check("btrfs", "rw,compress=", None);
        check("btrfs", "rw,compress=zstd 3", None);
        check("btrfs", &format!("compress={}", "z".repeat(99)), None);
        check(
            "f2fs",
            "rw,compress_algorithm=lz4,compress_mode=fs",
            Some("lz4"),
        );
        check("f2fs", "rw,lazytime", Some("none"));
        check("ubifs", "rw,compr=zlib", Some("zlib"));
        check("ubifs", "rw", None);
        check("bcachefs", "rw,compression=lz4:1", Some("lz4:1"));
        check("bcachefs", "rw", None);
        check("zfs", "rw,xattr", None);
        check("squashfs", "ro", None);
        check("nfs4", "rw,vers=4.2", None);
        check("fuse.unheard", "rw", None);
    }
}
