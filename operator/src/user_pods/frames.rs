//! The frames of an answer: a length (`u32`, big endian) and so many bytes of output. Length 0 ends the output, and one
//! byte follows: the command's exit status.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The most bytes of output in a frame.
pub const MAX_PIECE_BYTES: usize = 64 << 10;

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Output of the command.
    Output(Vec<u8>),
    /// The command has ended with this status.
    End(u8),
}

/// Returns the frame of output, of which there are 1 to [`MAX_PIECE_BYTES`].
pub fn output(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[..], bytes].concat()
}

/// Returns the last frame.
pub fn end(status: u8) -> [u8; 5] {
    [0, 0, 0, 0, status]
}

/// Reads the next frame.
///
/// # Errors
/// If the stream ends before its last frame, or a frame is too long.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Piece> {
    let len = from.read_u32().await? as usize;
    match len {
        0 => Ok(Piece::End(from.read_u8().await?)),
        1..=MAX_PIECE_BYTES => {
            let mut bytes = vec![0; len];
            from.read_exact(&mut bytes).await?;
            Ok(Piece::Output(bytes))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "it does not answer as volferry does")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_read_as_it_was_sent_and_nothing_else_is_taken_for_one() {
        let sent = [&output(b"a\0\xff\n")[..], &output(&[7; MAX_PIECE_BYTES]), &end(3)].concat();
        let mut from = &sent[..];
        assert_eq!(read(&mut from).await.unwrap(), Piece::Output(b"a\0\xff\n".into()));
        assert_eq!(read(&mut from).await.unwrap(), Piece::Output(vec![7; MAX_PIECE_BYTES]));
        assert_eq!(read(&mut from).await.unwrap(), Piece::End(3));
        for cut in [0, 3, 6] {
            let error = read(&mut &sent[..cut]).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{cut}");
        }
        let text = read(&mut &b"OCI runtime exec failed"[..]).await.unwrap_err();
        assert_eq!(text.kind(), io::ErrorKind::InvalidData);
    }
}
